-- Fewer pages to write with every call.

-- Programs read the history of their agent. Only people look a call up by its id, and that may read every record.
DROP INDEX history_by_call;

-- Few values are kept: a reference is found by reading them all.
CREATE TABLE kept_values (
  id INTEGER PRIMARY KEY,
  owner_id INTEGER NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  reference TEXT NOT NULL,
  start INTEGER NOT NULL, -- the sum of the bytes of all values ever kept before this one
  bytes INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  payload TEXT NOT NULL
) STRICT;
INSERT INTO kept_values SELECT id, owner_id, reference, start, bytes, created_at, payload FROM contents;
DROP TABLE contents;
ALTER TABLE kept_values RENAME TO contents;
