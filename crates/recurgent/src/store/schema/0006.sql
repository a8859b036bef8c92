-- Few values are kept, whoever they are of: to look through them when an owner goes costs less than one more page
-- to write with every call.
DROP INDEX contents_by_owner;
