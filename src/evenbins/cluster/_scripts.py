"""The steps that a server makes in one piece: scripts in Lua, run by EVALSHA.

    read     blocks of a segment, one after the other (several segments: see `traverse_on` of RedisFilter)
    add      keys to blocks of a segment: each is present, is placed, or passes because its block is full
    swap     a whole segment, if it has not been changed since it was read
    merge    OR a mask of the size of a segment into it
    claim    a name, for a filter that is to be made
    make     an empty segment
    listed   which of some digests are on the list
    list     put digests on the list while it has room

Each compares the segment's mark (its first 32 bytes) first: error EVBMISSING or EVBDAMAGED if it is another.
A client sends positions, not digests: a key is its block's offset, its coin, and (byte, mask) pairs. So a
script needs no arithmetic beyond 32 bits, of which Lua's numbers would be the limit, and no hash function.

All of them may be repeated: a key that is present changes nothing, and a swap that was made is refused the
next time. A script that is cut short by the server (out of memory) has set bits of keys and nothing else.

Tried and dropped: one BITFIELD call a key instead of string.byte and string.char (17 sub-commands take longer
than 64 bytes through Lua); a cache of blocks within a script (batches of which it would help are swapped).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

__all__ = [
    "ADD", "CLAIM", "LIST", "LISTED", "MAKE", "MERGE", "PASSED", "PLACED", "PRESENT", "READ", "SCRIPTS",
    "SWAP", "Script",
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
redis.call('SET', KEYS[2], ARGV[2])
redis.call('BITOP', 'OR', KEYS[1], KEYS[1], KEYS[2])
redis.call('DEL', KEYS[2])
return 1
""",
    keys=2,
)
"""KEYS: the segment, the mask beside it. ARGV: mark, the mask (zeros where the head is). Reply: 1."""

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

SCRIPTS = (READ, ADD, SWAP, MERGE, CLAIM, MAKE, LISTED, LIST)
