"""Random histories of actions and faults, compared with a model: `make hunt`."""
