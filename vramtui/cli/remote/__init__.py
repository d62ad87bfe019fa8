"""Commands on other machines: which hosts, and a look at each."""
