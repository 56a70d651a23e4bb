"""The commands of ``headgate``, each in a module of its own."""
