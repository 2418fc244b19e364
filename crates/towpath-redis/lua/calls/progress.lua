-- progress: keeps a report of the call's holder and tells whoever waits for the call.
--
-- KEYS  1 calls  2 progress
-- ARGV  1 id  2 version the host saw  3 report  4 the inbox of this process, which it does not write to  5 how long a reply is kept, ms
-- gives 1 done, 0 somebody was faster
local life = redis.call('HGET', KEYS[1], ARGV[1])
if not life or string.match(life, '^%d+') ~= ARGV[2] then return 0 end
local last = redis.call('HGET', KEYS[2], ARGV[1])
local number = (last and tonumber(string.match(last, '^%d+')) or 0) + 1
redis.call('HSET', KEYS[2], ARGV[1], number .. '\n' .. ARGV[3])
for channel in string.gmatch(string.match(life, '^' .. string.rep('[^\n]*\n', 18) .. '([^\n]*)\n'), '[^\t]+') do
  if channel ~= ARGV[4] and string.find(channel, '^function:response:inbox:') then
    redis.call('LPUSH', channel, 'i' .. #ARGV[1] .. ':' .. ARGV[1])
    redis.call('PEXPIRE', channel, ARGV[5])
  end
end
return 1
