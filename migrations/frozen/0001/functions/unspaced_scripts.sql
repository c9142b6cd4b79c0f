-- The scripts that are written without spaces between words, as a bracket expression: Japanese, Chinese, Korean, Thai,
-- Lao, Burmese, Khmer. Marks between their words (the Katakana middle dot) are not in it.
create or replace function ragdb.unspaced_scripts() returns text
language sql immutable parallel safe
set search_path from current
as $function$
  select '[\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3041-\u3096\u3099-\u309f'
         '\u30a1-\u30fa\u30fc-\u30ff\u3100-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff'
         '\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf\u1000-\u104f\u1780-\u17d3]'
$function$;
comment on function ragdb.unspaced_scripts() is 'Letters of the scripts without spaces between words, as a bracket expression for ~.';

-- What stands between words, as a bracket expression: spaces of every kind, punctuation, symbols, emoji. Named here, code
-- by code: what PostgreSQL's parser and [[:punct:]] take for punctuation beyond ASCII depends on the database's locale.
-- Not the joiners inside words (soft hyphen, zero-width joiners): ragdb.analyze() takes those out.
create or replace function ragdb.between_words() returns text
language sql immutable parallel safe
set search_path from current
as $function$
  select '[-_./:@#\\<>&~=+*%^|"`$()\[\]{}!?;,\u0080-\u00a9\u00ab\u00ac\u00ae-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7'
         '\u02c2-\u02df\u037e\u0387\u055a-\u055f\u0589\u058a\u05be\u05c0\u05c3\u05c6\u05f3\u05f4\u0600-\u060f\u061b-\u061f\u066a-\u066d\u06d4\u0964\u0965'
         '\u0df4\u0e3f\u0e4f\u0e5a\u0e5b\u104a-\u104f\u10fb\u1361-\u1368\u166d\u166e\u1680\u16eb-\u16ed\u17d4-\u17da\u1800-\u180a'
         '\u2000-\u200b\u200e-\u205f\u2061-\u206f\u20a0-\u20cf\u2190-\u245f\u2500-\u2bff\u2cf9-\u2cff\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\u3030'
         '\u3036\u3037\u303d-\u303f\u30a0\u30fb\ua4fe\ua4ff\ua60d-\ua60f\ufd3e\ufd3f\ufe10-\ufe1f\ufe30-\ufe6f\ufff9-\uffff\U0001f000-\U0001faff]+'
$function$;
comment on function ragdb.between_words() is 'What stands between words (spaces, punctuation, symbols) as a bracket expression for regexp_replace().';
