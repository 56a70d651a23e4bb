"""``headgate up``: worker processes, connectors applied, what is shown, when it ends."""
