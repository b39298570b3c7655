"""The sessions of one gateway: each an actor with a mailbox, from its begin to its end."""
