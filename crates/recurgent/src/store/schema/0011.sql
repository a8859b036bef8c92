-- Answers of a model to questions of programs about data; `start` is the sum of the bytes of all answers ever kept before.
CREATE TABLE answers (
  id INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  start INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  answer TEXT NOT NULL
) STRICT;
CREATE INDEX answers_by_start ON answers (start);
