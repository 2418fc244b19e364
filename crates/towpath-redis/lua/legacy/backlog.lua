-- backlog: what legacy callers wait for, read at one instant. Writes nothing.
--
-- KEYS  1 stream  2 legacy  3 exported
-- ARGV  1 group
-- gives {how many entries of legacy callers are unread, how many are held by legacy workers, the first unread of them or ``}
local LOOKED_MAX = 200
local info = redis.pcall('XINFO', 'GROUPS', KEYS[1])
if type(info) ~= 'table' or info.err then return { 0, 0, '' } end
local last, lag = '0-0', nil
for _, group in ipairs(info) do
  local about = {}
  for i = 1, #group, 2 do about[group[i]] = group[i + 1] end
  if about.name == ARGV[1] then last, lag = about['last-delivered-id'], about.lag end
end
local unread, first = 0, ''
local entries = redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', LOOKED_MAX)
for _, entry in ipairs(entries) do
  local is_call, is_ours = false, false
  for i = 1, #entry[2], 2 do
    is_call = is_call or entry[2][i] == 'callId'
    is_ours = is_ours or entry[2][i] == 'proto'
  end
  if is_call and not is_ours then
    unread = unread + 1
    if first == '' then first = entry[1] end
  end
end
if #entries == LOOKED_MAX then
  local exported = redis.pcall('ZCARD', KEYS[3])
  exported = type(exported) == 'number' and exported or 0
  unread = math.max(unread, (tonumber(lag) or redis.call('XLEN', KEYS[1])) - exported)
end
local held, pending = 0, redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', 1000)
if not pending.err then
  for _, one in ipairs(pending) do if one[2] ~= 'towpath' then held = held + 1 end end
end
local fields = redis.pcall('HKEYS', KEYS[2])
if not fields.err then
  for _, field in ipairs(fields) do if string.sub(field, 1, 2) == 'r:' then held = held - 1 end end
end
return { unread, math.max(0, held), first }
