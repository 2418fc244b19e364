-- answer: pushes the replies to ended calls onto the lists of their legacy callers, of each call once, where one server has all keys.
--
-- KEYS  1 owed, then per reply: the mark that says that the call was answered, the list
-- ARGV  1 how long lists and marks live, ms, then per reply: call id, reply
-- gives the lists that hold something else
local owed, wrong, done = {}, {}, {}
for i = 2, #ARGV, 2 do
  local id, mark, list = ARGV[i], KEYS[i], KEYS[i + 1]
  if owed[id] == nil then owed[id] = redis.call('SISMEMBER', KEYS[1], id) == 1 end
  if owed[id] then
    local kind = redis.call('TYPE', list).ok
    if kind == 'list' or kind == 'none' then
      redis.call('SET', mark, '1', 'PX', ARGV[1])
      redis.call('LPUSH', list, ARGV[i + 1])
      redis.call('PEXPIRE', list, ARGV[1])
    else
      wrong[#wrong + 1] = list
    end
    done[id] = true
  end
end
for id in pairs(done) do redis.call('SREM', KEYS[1], id) end
return wrong
