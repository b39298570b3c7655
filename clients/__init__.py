"""The client side: a client of the duplex wire, measurements on it, programs for people."""
