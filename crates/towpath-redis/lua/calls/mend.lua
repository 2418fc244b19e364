-- mend: removes members of a set that the records do not bear out.
--
-- KEYS  1 calls  2 the set
-- ARGV  1 how many members are looked at at most  2 `1` they must be parked  3 the worker that must hold them (`` any)
-- gives how many were removed
local members, gone = redis.call('SRANDMEMBER', KEYS[2], ARGV[1]), {}
for _, id in ipairs(members) do
  local record = call('HGET', KEYS[1], id)
  local holder, parked
  if record then holder, parked = match(record, '^' .. FORMAT .. 'R\t%d+\t%d+\t%d+\t%d\t%d+\t%d*\t%d+\t%d*\t%d\t([^\n]*)\n%d+\t%d+\t(%d)') end
  local fits = holder and (ARGV[2] == '') == (parked == '0') and (ARGV[3] == '' or holder == ARGV[3])
  if not fits then gone[#gone + 1] = id end
end
all('SREM', KEYS[2], gone)
return #gone
