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
