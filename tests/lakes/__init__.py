"""Lakes written by earlier versions of the project, which later ones must read, advance, rebuild and account for."""
