-- The dimension of a lexeme in lexical_weights: 29 bits of its sha256, counted from 1. Portable between servers
-- and, unlike md5, allowed on FIPS builds. 1,000,000 lexemes share about 930 dimensions in pairs, which is harmless.
-- A body of one expression, its names bound here: the planner writes it into the caller's statement, which makes the
-- weights of a chunk five times cheaper. Immutable in truth, but convert_to() is only declared stable.
create or replace function ragdb.lexeme_index(lexeme text) returns integer
language sql stable parallel safe strict
return 1 + (('x' || left(encode(sha256(convert_to(lexeme, 'UTF8')), 'hex'), 8))::bit(32)::integer & 536870911);
comment on function ragdb.lexeme_index(text) is 'Dimension (1 to 2^29) of a lexeme in lexical_weights.';
