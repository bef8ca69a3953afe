"""What the operators share, and what is behind their public modules. Nothing outside `operators` imports it."""
