-- lines: removes lines of sets that their runs do not know, or puts them off, behind place.lua.
-- ARGV  4 how many lines; per line: the set, the line, its run, the version that the run must have (`` it does not exist, `*` any), a new score
--       (`` the line goes)
-- gives how many lines were changed
local changed = 0
for _ = 1, tonumber(word()) do
  local set, line, id, version, score = unpack(words(5))
  local kept = redis.pcall('HGET', run_key(id), 'v')
  if version == '*' or (kept or '') == version then
    if score == '' then call('ZREM', T .. set, line) else call('ZADD', T .. set, 'XX', score, line) end
    changed = changed + 1
  end
end
return changed
