-- Few values are kept in all: scanning them when an owner is removed costs less than one more page to write with
-- every call.
DROP INDEX contents_by_owner;
