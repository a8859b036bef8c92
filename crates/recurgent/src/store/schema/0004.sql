-- What was done for whom: the last calls of each role, numbered from the first. What a call may correct is found by
-- its method and trace, the rest by reading the event.
CREATE TABLE patterns (
  role TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  method TEXT NOT NULL,
  trace_id TEXT NOT NULL,
  event TEXT NOT NULL,
  PRIMARY KEY (role, sequence)
) STRICT, WITHOUT ROWID;
