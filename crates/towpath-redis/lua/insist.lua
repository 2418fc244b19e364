-- insist: does one command although memory is full.
--
-- KEYS  1 its key
-- ARGV  the command, word by word
-- gives what the command gives, also when that is an error
return redis.pcall(unpack(ARGV))
