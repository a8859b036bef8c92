module Recurgent
  # Forks workers on the host's request and reaps them; single-threaded, never runs a program.
  class Zygote
    def initialize(worker)
      @worker = worker
      @control = Socket.for_fd(0)
      @control.autoclose = false
      @pid, @workers = Process.pid, Set.new
      seals = Recurgent.load(ENV.delete("RECURGENT_SEAL") || "{}")
      Network.off = seals["network"] == false
      Seal.new(seals["zygote"] || []).apply(nil)
      @seal = Seal.new(seals["worker"] || [])
    end

    def serve
      send_message(op: "ready", ipc_version: IPC_VERSION, guest: "ruby", version: RUBY_VERSION, pid: @pid)
      loop do
        packet, _, _, *controls = @control.recvmsg(4096, 0, 4096, scm_rights: true)
        break if packet.nil? || packet.empty?

        received = controls.flat_map { |control| control.unix_rights || [] }
        answer(Recurgent.load(packet), received)
      rescue SystemCallError, ArgumentError, JSON::ParserError => problem
        send_message(op: "failed", message: "#{problem.class}: #{problem.message}")
      ensure
        received&.each(&:close)
      end
      @workers.to_a.each { |pid| reap(pid) }
    end

    def fail_to_boot(problem)
      explanation = problem.message.scrub[0, MAX_EXPLANATION]
      send_message(op: "failed", package: problem.gem_name, message: explanation)
    end

    private

    def answer(message, received)
      case message["op"]
      when "fork" then fork_worker(message["scratch"], message["cgroups"].to_i, *received)
      when "reap" then send_message(op: "reaped", pid: message["pid"], **reap(message["pid"]))
      else raise ArgumentError, "unknown op #{message['op'].inspect}"
      end
    end

    def fork_worker(scratch, cgroups, channel, stdout, stderr, *handed)
      status_read, status_write = IO.pipe
      status = OUT_OF_MEMORY # set here: to set it needs memory
      pid = fork do
        status_read.close
        join_cgroups(handed.shift(cgroups))
        become_worker(scratch, channel, stdout, stderr, status_write, *handed)
      rescue NoMemoryError
        nil # too little memory is left for a message: the status reports it
      rescue Exception => problem
        status = 1
        status_write.write(problem.message)
      ensure
        Process.exit!(status)
      end
      @workers << pid
      status_write.close
      reply = status_read.readpartial(MAX_EXPLANATION) rescue ""
      status_read.close
      raise ArgumentError, "the worker failed during its start: #{reply} #{reap(pid)}" if reply != "+"
    end

    def join_cgroups(cgroups)
      cgroups.each do |cgroup|
        cgroup.syswrite("0") rescue nil # the host adds a worker that could not join by itself
        cgroup.close
      end
    end

    # In the child. Never returns, so nothing of the zygote runs here again.
    def become_worker(scratch, channel, stdout, stderr, status_write, ruleset = nil)
      Process.setsid
      if scratch
        ENV["HOME"] = ENV["TMPDIR"] = scratch
        Dir.chdir(scratch)
      end
      @seal.apply(ruleset)
      syscall(PRCTL, PR_SET_PDEATHSIG, Signal.list["KILL"], 0, 0, 0)
      Process.exit!(1) if Process.ppid != @pid # the zygote died before the signal was armed
      trap("INT", "SYSTEM_DEFAULT")
      # Sent by the worker itself: the host gets its process number from the kernel.
      @control.send(%({"op":"forked","pid":#{Process.pid}}), 0)
      STDIN.reopen(File::NULL)
      @worker.connect(channel, stdout, stderr)
      status_write.write("+")
      [channel, stdout, stderr, status_write, ruleset].compact.each(&:close)
      @worker.serve
    end

    def reap(pid)
      raise ArgumentError, "no worker #{pid}" unless @workers.include?(pid)

      kill_group(pid) # so that waiting cannot block, and nothing the worker started outlives it
      _, status = Process.wait2(pid)
      @workers.delete(pid)
      wait_for_group(pid)
      { signal: status.termsig, exit: status.exitstatus }
    end

    # Waits for the rest of the worker's process group, which became the zygote's when the worker ended.
    def wait_for_group(leader)
      loop { Process.wait(-leader) }
    rescue Errno::ECHILD
      nil
    end

    def kill_group(pid)
      [-pid, pid].each do |target|
        Process.kill(:KILL, target)
      rescue Errno::ESRCH
        nil
      end
    end

    def send_message(**message) = @control.send(Boundary.encode(message), 0)
  end
end
