"""The terminal UI: ``model`` has what it shows and needs no package, ``app`` shows it with Textual."""
