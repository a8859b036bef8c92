module Recurgent
  # Created once, in the zygote, with a channel that no host reads; each fork connects its own.
  class Worker
    def initialize(socket)
      @socket, @channel, @output = socket, Channel.new(socket.fileno), Output.new
      forget
    end

    def forget
      @context, @programs = Context.new, Programs.new
    end

    def connect(channel, stdout, stderr)
      @socket.reopen(channel)
      @channel.take_process
      @output.redirect(stdout, stderr)
    end

    # Exceptions that other threads raise in this one are delivered only while a program runs.
    def serve
      Thread.handle_interrupt(Object => :never) { loop { serve_one } }
    end

    def serve_one
      size, frame = @channel.receive_execute
      execution = Execution.new(@channel, @context, frame)
      limit = @channel.frame_bytes
      done = size > limit ? Recurgent.oversized(limit) : run(frame, execution)
      (Thread.list - [Thread.current]).each(&:kill)
      @output.restore
      Process.exit!(0) if Process.pid != @channel.pid # forked by the program: it must not send a result
      execution.finish(done.bytesize < limit ? done : Recurgent.oversized(limit))
    end

    private

    def run(frame, execution)
      if frame["ipc_version"] != IPC_VERSION
        raise Refusal.new("UnknownIpcVersion", "this worker speaks version #{IPC_VERSION}")
      end

      @programs.check(frame) # refused frames leave the context's version as it is
      @context.__advance(frame["context"])
      program = @programs.find(frame)
      value, result_from = Thread.handle_interrupt(Object => :immediate) { program.run(execution) }
      Recurgent.success(value, result_from, @context)
    rescue Exception => problem
      Recurgent.failure(problem)
    end
  end

  # A worker that has already run programs of the runtime. They fill inline caches and the like before the fork, so that
  # all workers share these pages of memory.
  def self.warmed_up_worker
    host, own = UNIXSocket.pair
    worker = Worker.new(own)
    WARM_UP_RUNS.times do |version|
      host.puts(Boundary.encode({
        op: "execute", ipc_version: IPC_VERSION, role: "zygote", method_name: "warm_up",
        code_digest: version.to_s, code: "args[0] + 1", args: [version], kwargs: {},
        context: { version: version, base: version.zero? ? nil : version - 1, set: {}, unset: [] },
        limits: { frame_bytes: DEFAULT_FRAME_BYTES }
      }))
      worker.serve_one
      host.gets
    end
    host.close
    Execution.current = nil
    worker.tap(&:forget)
  end
end
