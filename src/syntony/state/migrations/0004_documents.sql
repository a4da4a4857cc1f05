-- Values that are replaced as a whole, as JSON: the fleet timeline, the map of the fabric.
CREATE TABLE document (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
);
