-- What does an answer cost, and what of that did the client ask to see? After every piece of an answer the tokens used so
-- far stand in the metadata flashbox.usage {total, prompt, completion, cached, estimated}: whoever charges at the end of
-- a request finds them there, however it ended. The policy service says in flashbox.request what it made the engine
-- report: `strip` "all" hides every usage, "chunks" all but the final event, "" nothing; `prompt_estimate` holds until
-- the engine says better. No answer is held back here: at most one unfinished event, and MOST_HELD bytes.
-- auth.lua has removed accept-encoding, so answers are plain text.

local byte, find, match, sub = string.byte, string.find, string.match, string.sub
local concat, max = table.concat, math.max

local MOST_HELD = 65536                            -- of an event, or of events that wait for a fingerprint
local LONGEST_MEMBER = 1024                        -- more than a key with its usage takes
local PRECISION = 256
local QUOTE, COMMA, OPEN_LIST, OPEN_OBJECT = 34, 44, 91, 123

-- ---- what is known of one answer

-- `sum` is of the last figure of each choice; `said` is what stands in the metadata.
local function unknown(estimate)
  return {estimate = estimate, events = 0, choices = {}, sum = 0, cached = 0, said = {}}
end

local function say(facts, said, name, value)
  if said[name] == value then return end
  facts:set("flashbox.usage", name, value)
  said[name] = value
end

-- Until the engine names its tokens every event counts as one. A third of this filter's time goes into metadata, so
-- while more is to come (`later`) a long answer's figure may be up to 1/PRECISION short.
local function publish(handle, seen, later)
  local said, prompt, completion = seen.said, seen.prompt or seen.estimate, seen.completion or seen.events
  if later and said.prompt == prompt and said.cached == seen.cached and said.estimated == (seen.completion == nil) then
    local more = completion - said.completion
    if more >= 0 and more * PRECISION <= completion then return end
  end
  -- Metadata objects are dead after the next piece of a body, so they are fetched anew every time.
  local facts = handle:streamInfo():dynamicMetadata()
  say(facts, said, "total", prompt + completion)
  say(facts, said, "completion", completion)
  say(facts, said, "prompt", prompt)
  say(facts, said, "cached", seen.cached)
  say(facts, said, "estimated", seen.completion == nil)
end

-- All four APIs in one: OpenAI's two names for the same, and Anthropic's own for what came from the cache.
local function note(seen, object)
  local prompt = match(object, '"prompt_tokens"%s*:%s*(%d+)') or match(object, '"input_tokens"%s*:%s*(%d+)')
  local cached = match(object, '"cached_tokens"%s*:%s*(%d+)') or match(object, '"cache_read_input_tokens"%s*:%s*(%d+)')
  seen.prompt = tonumber(prompt) or seen.prompt
  seen.cached = tonumber(cached) or seen.cached
  return tonumber(match(object, '"completion_tokens"%s*:%s*(%d+)') or match(object, '"output_tokens"%s*:%s*(%d+)'))
end

-- What is said while an answer grows counts the tokens of one choice.
local function running(seen, index, completion)
  seen.sum = seen.sum + completion - (seen.choices[index] or 0)
  seen.choices[index] = completion
  seen.completion = seen.sum
end

-- ---- the usual event
-- Nearly every piece of a stream is one event like the one before it, to the end of a line: the same up to the number
-- of its choice, and what it adds is short. To know these by a few searches is what keeps the delay of a token small;
-- all others are read in full, with the same result.

local ENDING = 320                                 -- from the end of a choice's text to that of its event
local RUNNING = '^,"usage":{"prompt_tokens":(%d+),"total_tokens":%d+,"completion_tokens":(%d+)[,}]'

-- What an event begins with, for the next one; of other events "".
local function remember(usual, event)
  local beginning = usual.beginning
  if beginning ~= "" and sub(event, 1, #beginning) == beginning then return end
  usual.beginning = match(event, '^data: {[^{}\n]*"choices":%[{"index":') or ""
end

-- The place of a usual event's usage, which is counted; nil for any other event. `open` asks for a choice that goes on.
local function count_usual(usual, seen, event, open)
  local beginning, size = usual.beginning, #event
  local length = #beginning
  if length == 0 or sub(event, 1, length) ~= beginning or byte(event, length + 2) ~= COMMA then return nil end
  if find(event, "\n", 1, true) ~= size - 1 then return nil end
  local ending = max(1, size - ENDING)
  local place = find(event, ',"usage":{', ending, true)
  if not place or (open and not find(event, '"finish_reason":null', ending, true)) then return nil end
  local _, _, prompt, completion = find(event, RUNNING, place)
  if not prompt then return nil end
  seen.prompt = tonumber(prompt)
  running(seen, sub(event, length + 1, length + 1), tonumber(completion))
  return place
end

-- ---- reading: JSON that comes in pieces

-- `usage` is a key of the answer itself, or of what these hold in an event. Anywhere else it is the client's or the
-- model's own: a tool's schema that /v1/responses repeats, the arguments of a call.
local HOLDERS = {response = true, message = true}

-- The place behind the string that `at` is in; nil if it goes on in the next piece, and how many bytes of that belong
-- to an escape.
local function past_string(piece, at)
  while true do
    local found = find(piece, '["\\]', at)
    if not found then return nil, max(0, at - #piece - 1) end
    if byte(piece, found) == QUOTE then return found + 1 end
    at = found + 2
  end
end

-- A key near the top, which ends before `after`. False if its value is one that counts and is not complete yet.
local function key(reader, seen, piece, name, after)
  if reader.depth == 3 then                        -- of a choice
    if name ~= "index" then return true end
    reader.index = match(piece, "^%s*:%s*(%d+)%D", after)
    return reader.index ~= nil or not match(piece, "^%s*:?%s*%d*$", after)
  end
  if name ~= "usage" then
    if reader.depth == 1 then
      reader.top = name
      if name == "delta" or name == "choices" then seen.events = seen.events + 1 end
    end
    return true
  end
  local object = match(piece, "^%s*:%s*(%b{})", after)
  if object then
    local completion = note(seen, object)
    -- What a message begins with has only the prompt's tokens.
    if completion and reader.index then
      running(seen, reader.index, completion)
    elseif completion and (reader.depth == 1 or reader.top ~= "message") then
      seen.completion = max(completion, seen.completion or 0)
    end
    return true
  end
  return not match(piece, "^%s*:%s*{", after) and not match(piece, "^%s*:%s*$", after)
end

-- A string that begins at `from`: the place behind it, or nil if the next piece has to come first.
local function string_at(reader, seen, piece, from)
  local after, skip = past_string(piece, from + 1)
  local depth, top = reader.depth, reader.top
  if depth == 1 or (depth == 2 and HOLDERS[top]) or (depth == 3 and top == "choices") then
    local complete = after and not match(piece, "^%s*$", after)
    if complete and after - from < 64 and match(piece, "^%s*:", after) then
      complete = key(reader, seen, piece, sub(piece, from + 1, after - 2), after)
    end
    if not complete and #piece - from < LONGEST_MEMBER then
      reader.carry = sub(piece, from)
      return nil
    end
  end
  if not after then reader.inside, reader.skip = true, skip end
  return after
end

-- Of whole events without usage only those with text have to be counted. Quotes are too many to search for.
local function count_silent(seen, piece)
  if find(piece, 'usage"', 1, true) or sub(piece, -2) ~= "\n\n" then return false end
  local at = find(piece, 'delta":', 1, true)
  while at do
    if byte(piece, at - 1) == QUOTE then seen.events = seen.events + 1 end
    at = find(piece, 'delta":', at + 7, true)
  end
  return true
end

-- Follow brackets and strings through one piece. Events of a stream are JSON one after another, with nothing between
-- them that has a quote or an unpaired bracket.
local function read(reader, seen, piece)
  if reader.depth == 0 and not reader.carry and not reader.inside then
    if count_usual(reader, seen, piece) or count_silent(seen, piece) then return end
    remember(reader, piece)
  end
  if reader.carry then piece, reader.carry = reader.carry .. piece, nil end
  local at = 1
  if reader.inside then
    at, reader.skip = past_string(piece, 1 + reader.skip)
    if not at then return end
    reader.inside = false
  end
  while true do
    local found = find(piece, '["{}%[%]]', at)
    if not found then return end
    local kind = byte(piece, found)
    if kind == QUOTE then
      at = string_at(reader, seen, piece, found)
      if not at then return end
    else
      reader.depth = reader.depth + ((kind == OPEN_OBJECT or kind == OPEN_LIST) and 1 or -1)
      if reader.depth == 0 then reader.index = nil end
      at = found + 1
    end
  end
end

-- ---- hiding: events of /v1/chat/completions and /v1/completions
-- Quotes in a string are escaped, so these patterns find keys only; and here no key is the client's own.

local USAGE, FINISH, CHOICES, INDEX = '"usage"', '"finish_reason"', '"choices"', '"index"'
local FINGERPRINT = ',%s*"system_fingerprint"%s*:%s*"[^"]*"'

-- The first member of this name whose value looks like this. To look for the name alone first is several times faster.
local function member(text, name, value)
  local at = find(text, name, 1, true)
  while at do
    local behind = at + #name
    local _, upto, found = find(text, value, behind)
    if upto then return at, upto, found end
    at = find(text, name, behind, true)
  end
end

-- An engine that was not asked for usage puts its fingerprint into the last event of each choice, one that was asked
-- into the final event instead. So a choice's last event waits for the next one: mostly that is the final one. Where
-- other choices go on, the one of an earlier answer of the same replica serves, if there was any.
local HERE = {}
local fingerprints = {}

local function put(hider, text)
  local to = hider.waiting or hider.out
  to[#to + 1] = text
  if not hider.waiting then return end
  hider.size = hider.size + (text == HERE and 0 or #text)
end

local function settle(hider, print)
  for _, text in ipairs(hider.waiting or {}) do
    hider.out[#hider.out + 1] = text == HERE and print or text
  end
  hider.waiting, hider.size = nil, 0
end

-- The final event has the sums; its fingerprint belongs into the events that wait.
local function final(hider, seen, text, object)
  seen.completion = note(seen, object) or seen.completion
  if not hider.all then return put(hider, text) end
  local print = match(text, FINGERPRINT) or ""
  fingerprints[hider.replica] = print
  settle(hider, print)
end

-- What has to be known of an event when its usage comes; of a huge one this part may be gone by then.
local function look(hider, text)
  hider.finished = hider.finished or member(text, FINISH, '^%s*:%s*"') ~= nil
  if not hider.index then hider.index = select(3, member(text, INDEX, "^%s*:%s*(%d+)")) end
end

-- An event, or a part of a huge one that does not end inside a usage.
local function pass(hider, seen, text)
  local from, upto, object = member(text, USAGE, "^%s*:%s*(%b{})")
  if object and not hider.begun and member(text, CHOICES, "^%s*:%s*%[%s*%]") then
    return final(hider, seen, text, object)
  end
  local print = fingerprints[hider.replica]
  if hider.waiting and not hider.begun and print then settle(hider, print) end
  if hider.size > MOST_HELD then settle(hider, print or "") end
  local head = object and match(sub(text, 1, from - 1), "^(.*),%s*$")
  if not head then
    if not hider.begun and find(text, CHOICES, 1, true) then seen.events = seen.events + 1 end
    return put(hider, text)
  end
  local completion = note(seen, object)
  if completion then running(seen, hider.index or "0", completion) end
  local marked = hider.all and hider.finished
  if marked then hider.waiting = hider.waiting or {} end
  put(hider, head)
  if marked then put(hider, HERE) end
  put(hider, sub(text, upto + 1))
end

-- The end of the event at `from`: an empty line, after \n or \r\n.
local function event_end(text, from)
  while true do
    local found = find(text, "\n", from, true)
    if not found then return nil end
    local one, two = byte(text, found + 1, found + 2)
    if one == 10 then return found + 1 end
    if one == 13 and two == 10 then return found + 2 end
    from = found + 1
  end
end

-- Let the beginning of a huge event go; its end stays, with any usage that may not be complete.
local function shorten(hider, seen, rest)
  look(hider, rest)
  local cut = #rest - LONGEST_MEMBER
  local near = find(rest, '"usage"', cut - LONGEST_MEMBER, true)
  if near then cut = near - 9 end                  -- with its comma
  pass(hider, seen, sub(rest, 1, cut))
  hider.begun = true
  return sub(rest, cut + 1)
end

-- A usual event without its usage; nil for any other.
local function without_usage(hider, seen, event)
  local place = count_usual(hider, seen, event, true)
  if not place then return nil end
  local _, upto = find(event, "^%b{}", place + 9)
  return sub(event, 1, place - 1) .. sub(event, upto + 1)
end

-- A whole event, or the end of a huge one.
local function whole(hider, seen, event)
  local text = not hider.waiting and not hider.begun and without_usage(hider, seen, event)
  if text then return put(hider, text) end
  look(hider, event)
  pass(hider, seen, event)
  if not hider.begun then remember(hider, event) end
  hider.begun, hider.finished, hider.index = false, false, nil
end

-- The bytes for the client in place of this piece.
local function hide(hider, seen, piece)
  local text, from = hider.held .. piece, 1
  local upto = event_end(text, max(1, #hider.held - 2))
  hider.out = {}
  while upto do
    whole(hider, seen, sub(text, from, upto))
    from = upto + 1
    upto = event_end(text, from)
  end
  local rest = sub(text, from)
  hider.held = #rest > MOST_HELD and shorten(hider, seen, rest) or rest
  return concat(hider.out)
end

-- What is left when the answer ends, in the middle of an event perhaps.
local function leftover(hider)
  hider.out = {}
  settle(hider, fingerprints[hider.replica] or "")
  return concat(hider.out) .. hider.held
end

-- ---- one answer

local function follow(handle, seen)
  local reader = {depth = 0, skip = 0, beginning = ""}
  for chunk in handle:bodyChunks() do
    local size = chunk:length()
    if size > 0 then
      read(reader, seen, chunk:getBytes(0, size))
      publish(handle, seen, true)
    end
  end
  publish(handle, seen)
end

local function follow_and_hide(handle, seen, hider)
  local last, out
  for chunk in handle:bodyChunks() do
    local size = chunk:length()
    local piece = size > 0 and chunk:getBytes(0, size) or ""
    local before, good = hider.held, nil
    out = before == "" and not hider.waiting and without_usage(hider, seen, piece)
    if not out then
      good, out = pcall(hide, hider, seen, piece)
      if not good then                             -- rather show a usage than lose an event
        chunk:setBytes(before .. piece)
        error(out, 0)
      end
    end
    if out ~= piece then chunk:setBytes(out) end
    publish(handle, seen, true)
    last = chunk
  end
  -- The last piece is still alive here, no earlier one is.
  if last and (hider.held ~= "" or hider.waiting) then last:setBytes(out .. leftover(hider)) end
  publish(handle, seen)
end

local function answer(handle)
  local request = handle:streamInfo():dynamicMetadata():get("flashbox.request")
  if not request then return end                   -- nothing that costs tokens
  local headers = handle:headers()
  local replica = headers:get("x-flashbox-replica") or ""  -- the route says so; nothing for the client
  headers:remove("x-flashbox-replica")
  local seen = unknown(tonumber(request.prompt_estimate) or 0)
  if headers:get(":status") ~= "200" then
    seen.prompt, seen.completion = 0, 0
    return publish(handle, seen)
  end
  local stream = find(headers:get("content-type") or "", "text/event-stream", 1, true)
  if not stream or (request.strip or "") == "" then return follow(handle, seen) end
  headers:remove("content-length")
  local hider = {all = request.strip == "all", replica = replica, held = "", size = 0, beginning = ""}
  follow_and_hide(handle, seen, hider)
end

-- A client that leaves before the answer begins has used its prompt.
local function estimate(handle)
  local request = handle:streamInfo():dynamicMetadata():get("flashbox.request")
  if request then publish(handle, unknown(tonumber(request.prompt_estimate) or 0)) end
end

-- An error here must not touch the request: the estimate stands then, and the log says so.
local function guarded(work, handle)
  local whole, problem = pcall(work, handle)
  if not whole then handle:logErr("usage: " .. tostring(problem)) end
end

function envoy_on_request(handle) guarded(estimate, handle) end

function envoy_on_response(handle) guarded(answer, handle) end
