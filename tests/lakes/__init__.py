"""Lakes that earlier versions of the project wrote, which later ones must read, advance, rebuild and account for."""
