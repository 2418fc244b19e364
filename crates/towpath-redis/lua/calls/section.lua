-- section: the part of a script that is about one function.
-- A key of a wrong type ends a section while nothing is written: a section reads the keys that it will write, or writes first the one that it
-- has not read, or takes its first write back. Lines that a call leaves behind in a set that cannot be written do no harm.
-- `refused` is what the server refuses to any section, since nothing may be written now: the script ends with it.
local has_written, refused = false, nil

-- Runs one section. Its trouble is its own: `T` nothing was written, `X` something may have been.
local function run_section(section, ...)
  if refused then return false end
  has_written = false
  local fine, reply = pcall(section, ...)
  if fine then return reply end
  local why = type(reply) == 'table' and reply.err or tostring(reply)
  -- What the server refuses from the first write on: nothing was written by any section. With a full memory it refuses only writes that need more.
  for _, code in ipairs({ 'OOM', 'READONLY', 'MISCONF', 'NOREPLICAS', 'MASTERDOWN' }) do
    local at = find(why, code .. ' ', 1, true)
    if at and not (has_written and code == 'OOM') then
      refused = redis.error_reply(sub(why, at))
      return false
    end
  end
  return { has_written and 'X' or 'T', why }
end
