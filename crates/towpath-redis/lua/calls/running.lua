-- running: the record of a call that waits, as it is when a worker has claimed it. The words are those of WAITING; `held_by` stands behind the
-- delivery. Most calls are claimed once, and to make a text of a number takes longer than to compare two texts.
local function as_running(old, version, kept, delivery, held_by)
  local next_version, next_delivery = version == '1' and '2' or version + 1, delivery == '0' and '1' or delivery + 1
  return FORMAT .. 'R\t' .. next_version .. kept .. next_delivery .. held_by .. sub(old, find(old, '\n', 1, true), -1)
end
