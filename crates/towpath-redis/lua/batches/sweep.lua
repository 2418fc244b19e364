-- batches/sweep.lua = BatchStore::batch_sweep, behind place.lua. One page of the keys that have an open batch.
-- Arms what lost its deadline, unless it waits for a batch in flight, and forgets what has no messages.
-- ARGV  6 where the page begins  7 how many  8 1 = look at every batch and count the messages of those that an old worker has left
-- reply {keys looked at, keys armed, keys forgotten}
local members = redis.call('ZRANGE', FIRST, ARGV[6], ARGV[6] + ARGV[7] - 1)
if #members == 0 then return {0, 0, 0} end
local deadlines, armed, forgotten = redis.call('ZMSCORE', DUE, unpack(members)), 0, 0
for place, bk in ipairs(members) do
  if not deadlines[place] or ARGV[8] == '1' then
    local open, counted = read_open(bk)
    if not open then
      forget_open(bk, counted)
      forgotten = forgotten + 1
    else
      if open.counted ~= open.n then keep_open(bk, open) end
      if not deadlines[place] and not flying(bk) then
        redis.call('ZADD', DUE, sec(open.deadline), bk)
        wake(open.deadline)
        armed = armed + 1
      end
    end
  end
end
return {#members, armed, forgotten}
