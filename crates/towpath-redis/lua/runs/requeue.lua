-- requeue: looks at ready runs, and puts those back into their queues that no worker could get from there, behind place.lua.
-- ARGV  4 queue: `n` or `f`, 5 number of the first run, 6 how many runs, 7 an entry that was delivered this long ago, in ms, was lost by its process
-- gives how many runs it looked at, and how many it put back
local queue, from, count, lost_after = word(), tonumber(word()), tonumber(word()), tonumber(word())
local set, back = T .. 'st:' .. set_of(queue), 0

local function was_delivered(stream, number)
  local pending = redis.pcall('XPENDING', stream, GROUP, number, number, 1)
  -- Without its group every entry is delivered again.
  return not pending.err and pending[1] and pending[1][3] >= lost_after
end

local function is_deliverable(entry)
  local stream, number = stream_of(sub(entry, 1, 1)), sub(entry, 2)
  local found = redis.pcall('XRANGE', stream, number, number)
  return not found.err and found[1] and not was_delivered(stream, number)
end

local ids = call('ZRANGE', set, from, from + count - 1)
for _, id in ipairs(ids) do
  local kept = redis.pcall('HMGET', run_key(id), 's', 'e')
  if not kept.err then
    if kept[1] ~= set_of(queue) then
      call('ZREM', set, id)
    elseif not kept[2] or not is_deliverable(kept[2]) then
      if kept[2] then remove_entry(kept[2]) end
      add_entry(queue, id)
      back = back + 1
    end
  end
end
if back > 0 then redis.pcall('PUBLISH', CHANNEL, '') end
return { #ids, back }
