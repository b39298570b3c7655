"""MiniCPM-o 4.5: it hears audio itself and decides each second whether to listen or to speak."""
