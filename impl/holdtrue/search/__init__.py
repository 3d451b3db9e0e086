"""Finding memories: a query is parsed, two legs look for it in one snapshot, fusion orders what they bring."""
