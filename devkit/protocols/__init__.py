"""Front ends: they decode, call the engine and encode, so no two of them can disagree."""
