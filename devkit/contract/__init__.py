"""What Triton means: configs, rules and the v2 protocol's forms. Pure; no I/O."""
