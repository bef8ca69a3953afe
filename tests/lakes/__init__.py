"""Lakes that earlier versions of the project wrote. Later versions must read, advance, rebuild and account for them."""
