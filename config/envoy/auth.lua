-- Who is calling, and what may he ask? Looks the SHA-256 of the caller's key up in KEYS, the table that ecds_auth.yaml
-- puts in front of this text: KEYS["<64 hex digits>"] = {name, limits, expires, models, budget}. No key is stored anywhere,
-- only digests. Keys carry 256 random bits, so one plain SHA-256 is enough. Envoy's Lua has no hash function; LuaJIT
-- compiles this one, and its cost is far below a request's.

local bit = require("bit")
local band, bnot, bxor, ror, shr, tobit = bit.band, bit.bnot, bit.bxor, bit.ror, bit.rshift, bit.tobit

-- SHA-256 takes its constants from the fractional parts of roots of the first 64 primes (FIPS 180-4).
local START, ROUND = {}, {}
do
  local function fraction(x) return tobit(math.floor((x - math.floor(x)) * 4294967296)) end
  local candidate = 2
  while #ROUND < 64 do
    local prime = true
    for divisor = 2, math.floor(math.sqrt(candidate)) do
      if candidate % divisor == 0 then prime = false; break end
    end
    if prime then
      ROUND[#ROUND + 1] = fraction(candidate ^ (1 / 3))
      if #START < 8 then START[#START + 1] = fraction(math.sqrt(candidate)) end
    end
    candidate = candidate + 1
  end
end

local function word_bytes(n)
  return string.char(band(shr(n, 24), 255), band(shr(n, 16), 255), band(shr(n, 8), 255), band(n, 255))
end

-- One 64-byte block, starting at `first`, folded into the eight words of `hash`.
local function fold_block(hash, text, first)
  local w = {}
  for i = 1, 16 do
    local a, b, c, d = text:byte(first + 4 * i - 4, first + 4 * i - 1)
    w[i] = tobit(a * 16777216 + b * 65536 + c * 256 + d)
  end
  for i = 17, 64 do
    local x, y = w[i - 15], w[i - 2]
    local s0 = bxor(ror(x, 7), ror(x, 18), shr(x, 3))
    local s1 = bxor(ror(y, 17), ror(y, 19), shr(y, 10))
    w[i] = tobit(w[i - 16] + s0 + w[i - 7] + s1)
  end
  local a, b, c, d, e, f, g, h = unpack(hash)
  for i = 1, 64 do
    local choose = bxor(band(e, f), band(bnot(e), g))
    local t1 = tobit(h + bxor(ror(e, 6), ror(e, 11), ror(e, 25)) + choose + ROUND[i] + w[i])
    local majority = bxor(band(a, b), band(a, c), band(b, c))
    local t2 = tobit(bxor(ror(a, 2), ror(a, 13), ror(a, 22)) + majority)
    a, b, c, d, e, f, g, h = tobit(t1 + t2), a, b, c, tobit(d + t1), e, f, g
  end
  for i, v in ipairs({a, b, c, d, e, f, g, h}) do hash[i] = tobit(hash[i] + v) end
end

local function sha256(text)
  local bits = #text * 8
  text = text .. "\128" .. string.rep("\0", (55 - #text) % 64) .. "\0\0\0\0" .. word_bytes(bits)
  local hash = {unpack(START)}
  for first = 1, #text, 64 do fold_block(hash, text, first) end
  for i = 1, 8 do hash[i] = bit.tohex(hash[i]) end
  return table.concat(hash)
end

-- The key that a request shows, false for one in a wrong form, nil for none. Anthropic's clients send `x-api-key`;
-- where there is an Authorization header it alone counts. Envoy joins two headers of a name with a comma: no key has one.
local function shown(headers)
  local value = headers:get("authorization")
  if value then return value:match("^[Bb][Ee][Aa][Rr][Ee][Rr] +([^%s,]+) *$") or false end
  value = headers:get("x-api-key")
  if value then return value:match("^([^%s,]+)$") or false end
end

-- The verdict on one request's headers: the error code for the client, or "ok"; with the key's id and row, if known.
local function judge(headers)
  local key = shown(headers)
  if key == nil then return "missing_api_key" end
  if not key or #key > 256 then return "invalid_api_key" end
  local digest = sha256(key)
  local row = KEYS[digest]
  if type(row) ~= "table" then return "invalid_api_key" end
  local id = digest:sub(1, 12)                     -- 48 bits: enough to tell keys apart in a log, useless to replay
  if row.expires and os.time() >= row.expires then return "expired_api_key", id, row end
  return "ok", id, row
end

local SAYS = {
  missing_api_key = "No API key was given. Send it as: Authorization: Bearer YOUR_KEY (or x-api-key: YOUR_KEY)",
  invalid_api_key = "Incorrect API key.",
}

local function refusal(verdict, row)
  if verdict ~= "expired_api_key" then return SAYS[verdict] end
  return "This API key expired at " .. os.date("!%Y-%m-%d %H:%M:%S", row.expires) .. " UTC. Use another one."
end

-- What the filters behind this one, the policy service and the log know of the caller.
local function tell(facts, row)
  local function say(name, value) facts:set("flashbox.auth", name, value) end
  say("models", row.models or "")                  -- those that he may use; "" is every one
  for name, value in pairs(row.limits) do say(name, value) end
  -- Whose buckets; without a limit there is none. The name, not the digest: a key that was changed keeps its bucket.
  if row.limits.cost_second then say("bucket_second", row.name) end
  if row.limits.cost_minute then say("bucket_minute", row.name) end
  say("payer", row.name)
  if row.budget then say("budget", row.name) end   -- it has a limit of tokens or streams: the budget service is asked
end

function envoy_on_request(handle)
  local headers = handle:headers()
  -- An error in a script makes Envoy go on with the request: flashbox.require_auth, the filter behind this one, refuses
  -- whatever was not called "ok".
  local whole, verdict, key_id, row = pcall(judge, headers)
  if not whole then verdict, key_id, row = "invalid_api_key", nil, nil end
  local facts = handle:streamInfo():dynamicMetadata()
  if row then
    facts:set("flashbox.auth", "key_id", key_id)
    facts:set("flashbox.auth", "client", row.name)
  end
  if verdict ~= "ok" then
    facts:set("flashbox.auth", "result", verdict)
    if row then facts:set("flashbox.auth", "refused", verdict) end  -- counted: somebody's key
    local answer = {[":status"] = "401", ["www-authenticate"] = 'Bearer realm="flashbox"'}
    handle:respond(answer, refusal(verdict, row))
    return
  end
  tell(facts, row)
  headers:remove("authorization")                  -- the client's key ends here; the replicas' own key is put in later
  headers:remove("x-api-key")
  headers:remove("x-flashbox-affinity")            -- only the policy service names conversations
  headers:remove("accept-encoding")                -- answers are read as they pass (usage.lua): plain text
  -- No allowed route has a query, and clients put keys there by mistake: replicas must not log them.
  local path = headers:get(":path")
  local query = path and path:find("?", 1, true)   -- CONNECT has no path
  if query then headers:replace(":path", path:sub(1, query - 1)) end
  facts:set("flashbox.auth", "result", "ok")       -- last: whatever failed before leaves the lock shut
end

-- One limit as its filter told it, in requests. A bucket for minutes takes in 60 s what it does not hold at once.
local function in_requests(facts, capacity, left)
  local second = capacity == UNITS
  local cost = second and facts.cost_second or facts.cost_minute
  local per_s = second and UNITS or (UNITS - capacity) / 60
  return {
    limit = second and facts.per_second or facts.per_minute,
    left = math.floor(left / cost),
    reset = math.ceil((capacity - left) / per_s),  -- until the bucket is full
    wait = math.max(1, math.ceil((cost - left) / per_s)),
  }
end

-- The limits that were asked, the last one first.
local function told(headers, facts)
  local found = {}
  for at = 0, headers:getNumValues("x-ratelimit-limit") - 1 do
    local capacity = tonumber(headers:getAtIndex("x-ratelimit-limit", at))
    local left = tonumber(headers:getAtIndex("x-ratelimit-remaining", at))
    found[#found + 1] = in_requests(facts, capacity, left)
  end
  return found
end

-- The filters of limits count in units: clients are told requests, of the limit that is nearer.
function envoy_on_response(handle)
  local headers = handle:headers()
  local refused = headers:get("x-flashbox-limit")
  local metadata = handle:streamInfo():dynamicMetadata()
  if refused then
    metadata:set("flashbox.limit", "refused", refused)
    if refused:sub(1, 9) == "limit_ip_" then return end  -- counts in requests
    if refused:sub(1, 10) == "limit_key_" then
      metadata:set("flashbox.auth", "refused", refused)
    else
      metadata:set("flashbox.auth", "payer", "")   -- by the budget service: it has counted it, and says when to try again
      refused = nil
    end
  end
  if not headers:get("x-ratelimit-limit") then return end
  local limits = told(headers, metadata:get("flashbox.auth"))
  local near = limits[1]                           -- the last that was asked is the one that refused
  for _, other in ipairs(limits) do
    local less = other.left < near.left or (other.left == near.left and other.reset > near.reset)
    if less and not refused then near = other end
  end
  local answers = {["x-ratelimit-limit"] = near.limit, ["x-ratelimit-remaining"] = near.left,
                   ["x-ratelimit-reset"] = near.reset, ["retry-after"] = refused and near.wait or nil}
  for name, value in pairs(answers) do
    headers:remove(name)                           -- of both filters
    headers:add(name, tostring(value))
  end
end
