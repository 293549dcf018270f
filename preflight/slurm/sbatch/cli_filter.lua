-- preflight:sbatch - SLURM's cli_filter/lua (CliFilterPlugins=lua in slurm.conf; this file beside slurm.conf as
-- cli_filter.lua): checks every job of every sbatch, also where users call it by its path. See docs/how-to/admin.md.

local python = "/opt/preflight/bin/python"

-- For everyone, each behind a space: " --preflight-default=warn --preflight-log=syslog"
local extra = ""

-- Exit status 100: stop. Whatever else happens to it, the job is submitted.
local program = [==[
import sys
try:
    from preflight.slurm.sbatch.gate import main
    stop = main(["--preflight-only", *sys.argv[1:]]) == 1
except BaseException:
    stop = False
sys.exit(100 if stop else 0)
]==]

local function quoted(word)
   return "'" .. string.gsub(word, "'", "'\\''") .. "'"
end

-- sbatch's own words; nil where they cannot be known.
local function words()
   local file = io.open("/proc/self/cmdline", "rb")
   if file == nil then
      return nil
   end
   local text = file:read("*a")
   file:close()
   local found, from = {}, 1
   while true do
      local at = string.find(text, "\0", from, true)
      if at == nil then
         return found
      end
      table.insert(found, string.sub(text, from, at - 1))
      from = at + 1
   end
end

local function stopped()
   local line = { quoted(python), "-I", "-c", quoted(program) .. extra }
   local given = words()
   if given == nil then
      return false
   end
   for index = 2, #given do
      table.insert(line, quoted(given[index]))
   end
   -- A script on standard input was read by sbatch already: it is not checked.
   local result, _, status = os.execute(table.concat(line, " ") .. " </dev/null >&2")
   if type(result) == "number" then
      status = math.floor(result / 256) -- Lua 5.1 gives what waitpid does
   end
   return status == 100
end

function slurm_cli_setup_defaults(options, early_pass)
   return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
   if options["type"] ~= "sbatch" or pack_offset > 0 or os.getenv("PREFLIGHT_SBATCH") == "off" then
      return slurm.SUCCESS
   end
   local fine, stop = pcall(stopped)
   if fine and stop then
      return slurm.ERROR
   end
   return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
   return slurm.SUCCESS
end
