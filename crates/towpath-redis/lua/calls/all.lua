-- all: a command with many words, unless there is none.
local function all(command, key, words) if #words > 0 then call(command, key, unpack(words)) end end
