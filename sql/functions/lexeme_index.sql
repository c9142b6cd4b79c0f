-- The dimension of a lexeme in lexical_weights: 29 bits of its sha256, counted from 1. Portable between servers
-- and, unlike md5, allowed on FIPS builds. 1,000,000 lexemes share about 930 dimensions in pairs, which is harmless.
create or replace function ragdb.lexeme_index(lexeme text) returns integer
language sql immutable parallel safe strict
set search_path from current
as $function$
  select 1 + (((get_byte(h, 0) & 31) << 24) | (get_byte(h, 1) << 16) | (get_byte(h, 2) << 8) | get_byte(h, 3))
    from sha256(convert_to(lexeme, 'UTF8')) h
$function$;
comment on function ragdb.lexeme_index(text) is 'Dimension (1 to 2^29) of a lexeme in lexical_weights.';
