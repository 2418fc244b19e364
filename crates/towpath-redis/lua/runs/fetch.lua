-- fetch: delivers entries of one queue of a place, and gives the runs of those that are ready, behind place.lua.
-- ARGV  4 queue: `n` or `f`, 5 how many runs, 6 how many entries at most
-- gives per run: {id, version, header, instant of the latest entry, reference, input hash}, or {id, why it cannot be read}
-- An entry whose run does not exist, or has another entry, is acknowledged and deleted. The entry of a run that is executed stays: its group
-- was made again.
local queue, want, left = word(), tonumber(word()), tonumber(word())
local stream, ready = stream_of(queue), {}

local function read(count)
  local reply = redis.pcall('XREADGROUP', 'GROUP', GROUP, GROUP, 'COUNT', count, 'STREAMS', stream, '>')
  if type(reply) == 'table' and reply.err then
    if not find(reply.err, 'NOGROUP', 1, true) then return nil, reply end
    if call('EXISTS', stream) == 0 then return {} end
    call('XGROUP', 'CREATE', stream, GROUP, '0')
    return read(count)
  end
  return reply and reply[1][2] or {}
end

local function id_in(fields)
  for i = 1, #fields - 1, 2 do
    if fields[i] == 'run' then return fields[i + 1] end
  end
  return ''
end

while #ready < want and left > 0 do
  local entries, trouble = read(math.min(want - #ready, left))
  if trouble then return trouble end
  if #entries == 0 then break end
  left = left - #entries
  for _, entry in ipairs(entries) do
    local name, id = queue .. entry[1], id_in(entry[2] or {})
    local kept = redis.pcall('HMGET', run_key(id), 's', 'e', 'v', 'h', 'a', 'r', 'i')
    if kept.err then
      ready[#ready + 1] = { id, kept.err }
    elseif not kept[1] or kept[2] ~= name then
      remove_entry(name)
    elseif kept[1] == set_of(queue) then
      ready[#ready + 1] = { id, kept[3], kept[4], kept[5], kept[6], kept[7] }
    end
  end
end
return ready
