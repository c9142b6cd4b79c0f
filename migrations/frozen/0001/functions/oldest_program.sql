-- The lowest revision that a program may be made for and still run with this schema. A program that knows less than the
-- database has asks it, when it starts, and goes on or refuses.
-- It is raised by a revision that takes something away which programs of released versions use: a column, a function, a
-- table (`make freeze` asks for it). One that only adds leaves it as it is: the database is upgraded first, programs after it.
create or replace function ragdb.oldest_program() returns text
language sql immutable parallel safe
return '0001'::text;
comment on function ragdb.oldest_program() is 'The lowest revision that a program may be made for and still run with this schema.';
