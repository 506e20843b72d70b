"""One bigger machine for some hours: ordered once, always given back. What talks of money is in this folder alone."""
