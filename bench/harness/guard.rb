# frozen_string_literal: true

# guard.rb FOLDER USER COMMAND...: runs a server until standard input ends, which it does when whoever holds the
# other end is done, or dead, of whatever signal. Then the server is ended and its folder removed. USER is empty
# for the present one.

require "etc"
require "fileutils"

folder, user, *command = ARGV
%i[INT TERM HUP].each { |signal| Signal.trap(signal, "IGNORE") } # a terminal's Ctrl-C is for who holds the pipe

begin
  pid = fork do
    unless user.empty?
      account = Etc.getpwnam(user)
      Process.groups = []
      Process::GID.change_privilege(account.gid)
      Process::UID.change_privilege(account.uid)
    end
    %i[INT TERM HUP].each { |signal| Signal.trap(signal, "DEFAULT") }
    exec(*command, in: File::NULL, out: File.join(folder, "log"), err: %i[child out])
  end
  server = Process.detach(pid)
  over = Queue.new
  Thread.new { over << server.join }
  Thread.new { over << $stdin.read }
  over.pop
  # A fast shutdown for PostgreSQL and Redis alike.
  %i[INT KILL].each { |signal| server.join(5) if server.alive? && Process.kill(signal, pid) }
rescue Errno::ESRCH
  nil
ensure
  FileUtils.rm_rf(folder)
end
