"""How sessions get the stages: engines as actors, and who may use them until when."""
