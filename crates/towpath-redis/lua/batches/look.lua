-- batches/look.lua = BatchStore::open_batch, open_batches and batches_in_flight, behind place.lua. Reads for people.
-- ARGV  6 one | open | flights
--       one:           7 bk  8 the place of the first message  9 how many at most  10 bytes that end the page
--       open, flights: 7 how many  8 the instant behind which the page begins, ms, '' = from the first  9 the name at that instant
-- reply one:     {row of the open batch, id of the batch that it waits for or '', {message, ..}}, or nothing
--       open:    {{bk, first, last, deadline, reason, sealed 1|0, bytes, messages, armed 1|0}, ..}
--       flights: {{batch id, at, bk, attempt, token, first, last, reason, 1 = replayed}, ..}
local what = ARGV[6]
if what == 'one' then
  local open = read_open(ARGV[7])
  if not open then return false end
  local at, most, bytes_left, messages = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), {}
  while #messages < most and bytes_left > 0 do
    local piece = redis.call('LRANGE', lists .. ARGV[7], int(at), int(at + 15)) -- of 256 KiB each at most
    for _, message in ipairs(piece) do
      if #messages < most and bytes_left > 0 then
        messages[#messages + 1], bytes_left = message, bytes_left - #message
      end
    end
    if #piece < 16 then break end
    at = at + 16
  end
  return {as_row(open), flying(ARGV[7]) or '', messages}
end

local key, how_many, name = what == 'open' and FIRST or FLY, tonumber(ARGV[7]), ARGV[9]
local start, at = 0, tonumber(ARGV[8])
if at then
  local score = what == 'open' and sec(at) or int(at)
  local kept = redis.call('ZSCORE', key, name)
  if kept and tonumber(kept) == tonumber(score) then
    start = redis.call('ZRANK', key, name) + 1
  else -- it is gone: behind all that would have stood before it
    start = redis.call('ZCOUNT', key, '-inf', '(' .. score)
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, score, score)) do
      if member > name then break end
      start = start + 1
    end
  end
end

local function row_of(member, score)
  if what == 'open' then
    local open = read_open(member)
    if not open then return nil end
    local row = as_row(open)
    table.insert(row, 1, member)
    return row
  end
  local h = redis.call('HMGET', own .. 'ch:' .. member, 'bk', 'att', 'tok', 'f', 'l', 'r')
  if not h[1] then return nil end
  return {member, score, h[1], h[2], h[3], h[4], h[5], h[6], redis.call('HEXISTS', own .. 'ch:' .. member, 'p')}
end

local rows = {}
while #rows < how_many do
  local page = redis.call('ZRANGE', key, start, start + how_many - 1, 'WITHSCORES')
  if #page == 0 then break end
  for place = 1, #page, 2 do
    if #rows < how_many then rows[#rows + 1] = row_of(page[place], page[place + 1]) end
  end
  start = start + how_many
end
return rows
