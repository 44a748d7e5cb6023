"""The steps that a server makes in one piece: scripts in Lua, run by EVALSHA.

    read     blocks of a segment, one after the other (several segments: see `traverse_on` of RedisFilter)
    add      keys to blocks of a segment: each is present, is placed, or passes because its block is full
    swap     a whole segment, if it has not been changed since it was read
    merge    OR a mask of the size of a segment into it; where asked for, return what was there before
    test     set a key's bits in several segments of one server, and return whether one was missing
    lease    take turns of stripes of the digests, for calls that need several steps to test and set
    claim    a name, for a filter that is to be made
    make     an empty segment
    listed   which of some digests are on the list
    list     put digests on the list while it has room

Each compares the segment's mark (its first 32 bytes) first: error EVBMISSING or EVBDAMAGED if it is another.
A client sends positions, not digests: a key is its block's offset, its coin, and (byte, mask) pairs. So a
script needs no arithmetic beyond 32 bits, of which Lua's numbers would be the limit, and no hash function.

All of them may be repeated: a key that is present changes nothing, and a swap that was made is refused the
next time. (The answer is another the second time: `add_new` repeats nothing.) A script that is cut short by
the server (out of memory) has set bits of keys and nothing else.

Tried and dropped: one BITFIELD call a key instead of string.byte and string.char (17 sub-commands take longer
than 64 bytes through Lua); a cache of blocks within a script (batches of which it would help are swapped).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

__all__ = [
    "ADD", "CLAIM", "LEASE", "LIST", "LISTED", "MAKE", "MERGE", "PASSED", "PLACED", "PRESENT", "READ",
    "SCRIPTS", "SWAP", "TEST", "Script",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and the name by which a server knows it."""

    text: str
    keys: int = 1
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


_MARKED = """
local mark = redis.call('GETRANGE', KEYS[1], 0, 31)
if mark ~= ARGV[1] then
  return redis.error_reply((mark == '' and 'EVBMISSING ' or 'EVBDAMAGED ') .. KEYS[1])
end
"""

READ = Script("""
local call, unpack_ = redis.call, struct.unpack
local blocks, n = {}, 0
for s, segment in ipairs(KEYS) do
  local asked = ARGV[s]
  local mark = call('GETRANGE', segment, 0, 31)
  if mark ~= string.sub(asked, 1, 32) then
    return redis.error_reply((mark == '' and 'EVBMISSING ' or 'EVBDAMAGED ') .. segment)
  end
  local last = string.byte(asked, 33) - 1
  for i = 34, #asked, 4 do
    local at = unpack_('<I4', asked, i)
    n = n + 1
    blocks[n] = call('GETRANGE', segment, at, at + last)
  end
end
return table.concat(blocks)
""")
"""KEYS: segments. ARGV, for each: mark, bytes of a block (u8), offsets (u32 each). Reply: the blocks."""

ADD = Script("""
local call, byte, band, bor, floor = redis.call, string.byte, bit.band, bit.bor, math.floor
local answers
for s, segment in ipairs(KEYS) do
  local keys = ARGV[s]
  local mark, turn, pairs_, size, threshold, counter, forced, first = struct.unpack('<c32c16BBI4BB', keys)
  local head = call('GETRANGE', segment, 0, 47)
  if string.sub(head, 1, 32) ~= mark then
    return redis.error_reply((head == '' and 'EVBMISSING ' or 'EVBDAMAGED ') .. segment)
  end
  forced = forced == 1
  answers = {}
  local step, placed, shift = 5 + 2 * pairs_, 0, 2 ^ (24 - counter)
  for i = first, #keys, step do
    local at, coin = struct.unpack('<I4B', keys, i)
    local block = call('GETRANGE', segment, at, at + size - 1)
    if #block ~= size then return redis.error_reply('EVBDAMAGED ' .. segment) end
    local octets = {byte(block, 1, size)}
    local key = {byte(keys, i + 5, i + step - 1)}
    local present = true
    for j = 1, 2 * pairs_, 2 do
      local octet, mask = octets[key[j] + 1], key[j + 1]
      if band(octet, mask) ~= mask then
        present = false
        octets[key[j] + 1] = bor(octet, mask)
      end
    end
    local answer = '2'
    if not present then
      local accepts = true
      if counter > 0 then
        local top = octets[size] * 65536 + octets[size - 1] * 256 + octets[size - 2]
        local load = floor(top / shift)
        accepts = load < threshold or (load == threshold and coin == 1)
        if (accepts or forced) and load <= threshold then
          top = top + shift
          octets[size] = floor(top / 65536)
          octets[size - 1] = floor(top / 256) % 256
          octets[size - 2] = top % 256
        end
      elseif threshold <= 8 * size then
        accepts = call('BITCOUNT', segment, at, at + size - 1) < threshold
      end
      answer = '0'
      if accepts or forced then
        call('SETRANGE', segment, at, string.char(unpack(octets)))
        placed = placed + 1
        answer = '1'
      end
    end
    answers[#answers + 1] = answer
  end
  if placed > 0 then
    local before, spilled = struct.unpack('<I8I8', head, 33)
    if forced then spilled = spilled + placed else before = before + placed end
    call('SETRANGE', segment, 32, struct.pack('<I8I8', before, spilled) .. turn)
  end
  if answers[1] ~= '0' then break end
end
return table.concat(answers)
""")
"""KEYS: a segment; or those of one key's blocks, of which each is asked only if the one before sent it on.
ARGV, for each: mark, turn, pairs of a key (u8), bytes of a block (u8), threshold (u32), bits of the counter
(u8; 0: the threshold is for set bits), forced (u8; 1: spill, whatever the load), then keys: u32 offset, u8
coin, pairs of byte and mask.
Reply: a character a key, 0 it passed, 1 it was placed, 2 it was present; of the last block asked."""

PASSED, PLACED, PRESENT = range(3)
"""What a block does with a key: in the replies of `ADD`, and as `_core.place_in_blocks` decides it."""

SWAP = Script(
    _MARKED
    + """
if redis.call('GETRANGE', KEYS[1], 48, 63) ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[3])
return 1
"""
)
"""ARGV: mark, the turn when it was read, the new value. Reply: 1 if it was put in place."""

MERGE = Script(
    _MARKED
    + """
if redis.call('STRLEN', KEYS[1]) ~= #ARGV[2] then return redis.error_reply('EVBDAMAGED ' .. KEYS[1]) end
local before = ARGV[3] and redis.call('GET', KEYS[1]) or 1
redis.call('SET', KEYS[2], ARGV[2])
redis.call('BITOP', 'OR', KEYS[1], KEYS[1], KEYS[2])
redis.call('DEL', KEYS[2])
return before
""",
    keys=2,
)
"""KEYS: the segment, the mask beside it. ARGV: mark, the mask (zeros where the head is). Reply: 1, or
the segment's value before if there is a third argument."""

_LEASED = """
local call, time = redis.call, redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function holder(stripe)
  local held = call('HGET', KEYS[1], stripe)
  if held and tonumber(string.sub(held, 17)) > now then return string.sub(held, 1, 16), true end
  return held and string.sub(held, 1, 16), false
end
"""

TEST = Script(
    _LEASED
    + """
local stripe, either = string.sub(ARGV[1], 1, 1), string.byte(ARGV[1], 2) == 1
local token, valid = holder(stripe)
if valid then return token end
if token then call('HDEL', KEYS[1], stripe) end
local missing, present = {}, not either
for s = 2, #KEYS do
  local segment, keys = KEYS[s], ARGV[s]
  local mark, _, pairs_, size, _, _, _, first = struct.unpack('<c32c16BBI4BB', keys)
  local found = call('GETRANGE', segment, 0, 31)
  if found ~= mark then
    return redis.error_reply((found == '' and 'EVBMISSING ' or 'EVBDAMAGED ') .. segment)
  end
  local here = true
  for i = first, #keys, 5 + 2 * pairs_ do
    local at = struct.unpack('<I4', keys, i)
    local block = call('GETRANGE', segment, at, at + size - 1)
    if #block ~= size then return redis.error_reply('EVBDAMAGED ' .. segment) end
    for j = i + 5, i + 3 + 2 * pairs_, 2 do
      local octet, mask = string.byte(keys, j, j + 1)
      if bit.band(string.byte(block, octet + 1), mask) ~= mask then
        here = false
        if s == 2 or not either then missing[#missing + 1] = {segment, at + octet, mask} end
      end
    end
  end
  if either then present = present or here else present = present and here end
end
if present then return '2' end
for _, each in ipairs(missing) do
  local octet = string.byte(call('GETRANGE', each[1], each[2], each[2]))
  call('SETRANGE', each[1], each[2], string.char(bit.bor(octet, each[3])))
end
return '1'
"""
)
"""KEYS: the leases, segments. ARGV: the key's stripe and a flag (u8 each); for each segment what `ADD` has.
Flag 0, a standard filter: the key is present if all its bits are, and all are set. Flag 1, two choices: it is
present if either block has it, and it is added to that of the first segment.
Reply: 1 it was added, 2 it was present; or the token (16 bytes) of the lease that must end before."""

LEASE = Script(
    _LEASED
    + """
local own, what, refused = ARGV[1], ARGV[3], ''
for i = 1, #ARGV[2] do
  local stripe = string.sub(ARGV[2], i, i)
  local token, valid = holder(stripe)
  if token ~= own and (valid or what ~= 'take') then
    refused = what == 'take' and token or 'lost'
    if what == 'take' then break end
  elseif what == 'end' then
    call('HDEL', KEYS[1], stripe)
  else
    call('HSET', KEYS[1], stripe, own .. string.format('%.0f', now + ARGV[4]))
  end
end
call('PEXPIRE', KEYS[1], ARGV[4])
return refused
"""
)
"""KEYS: the leases. ARGV: token, stripes (u8 each, ascending), "take", "keep" or "end", length (ms).
"take" takes stripes in their order, up to the first that another token holds: the reply is that token.
"keep" and "end" reply "lost" if one of the stripes is not this token's any more. Else the reply is empty."""

CLAIM = Script("""
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('SET', KEYS[1], ARGV[1])
  return 1
end
if redis.call('TYPE', KEYS[1]).ok == 'string' and redis.call('GET', KEYS[1]) == ARGV[1] then return 1 end
return 0
""")
"""ARGV: the description, which has a random epoch. Reply: 1 if it is there now, by this claim or by one whose
reply was lost (SET NX would refuse the second); 0 if the name is taken."""

MAKE = Script("""
redis.call('SET', KEYS[1], ARGV[1] .. string.rep('\\0', tonumber(ARGV[2])))
return 1
""")
"""ARGV: the head, bytes of the blocks. Reply: 1."""

_LIST_MARKED = """
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch ~= ARGV[1] then
  return redis.error_reply((epoch and 'EVBDAMAGED ' or 'EVBMISSING ') .. KEYS[1])
end
local answers = {}
"""

LISTED = Script(
    _LIST_MARKED
    + """
for i = 1, #ARGV[2], 8 do
  answers[#answers + 1] = redis.call('HEXISTS', KEYS[1], string.sub(ARGV[2], i, i + 7))
end
return table.concat(answers)
"""
)
"""ARGV: epoch, digests (8 bytes each). Reply: a character a digest, 1 it is on the list."""

LIST = Script(
    _LIST_MARKED
    + """
local turn, limit = redis.call('HLEN', KEYS[1]) - 1, tonumber(ARGV[3])
for i = 1, #ARGV[2], 8 do
  local digest, answer = string.sub(ARGV[2], i, i + 7), '0'
  if redis.call('HEXISTS', KEYS[1], digest) == 1 then
    answer = '2'
  elseif turn < limit then
    redis.call('HSET', KEYS[1], digest, turn)
    turn, answer = turn + 1, '1'
  end
  answers[#answers + 1] = answer
end
return table.concat(answers)
"""
)
"""ARGV: epoch, digests, limit. Reply: a character a digest, 0 no room, 1 it was put there, 2 it was there."""

SCRIPTS = (READ, ADD, SWAP, MERGE, CLAIM, MAKE, LISTED, LIST, TEST, LEASE)
