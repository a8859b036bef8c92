module Recurgent
  # Facts about an exception, from which the host decides what is to blame. They are read by methods bound once: a
  # class of the program may override its own.
  module ExceptionFacts
    MAX_CAUSES = 16
    MAX_CLASSES = 16
    MAX_FRAMES = 10
    MAX_CLASS_NAME = 200
    CAUSE = Exception.instance_method(:cause)
    SUPERCLASS = Class.instance_method(:superclass)
    TEXT = Exception.instance_method(:to_s)
    IVAR = Kernel.instance_method(:instance_variable_get)

    class << self
      # The optional fields of a `done` with error type `execution`.
      def of(problem)
        causes = causes_of(problem).drop(1)
        facts = link_facts(problem)
        facts[:raised_in_program] = raised_in_program?(problem)
        facts[:backtrace] = backtrace_of(problem)
        # Ruby does not distinguish a cause that is given from the exception that was being handled.
        facts[:causes] = causes.map { |cause| link_facts(cause).merge(link: "while") } unless causes.empty?
        status = Execution.current&.http_status(BACKTRACE.bind_call(problem) || [])
        facts[:http_status] = status if status
        facts
      end

      # The exception, what was being handled when it was raised, and so on to the root cause.
      def causes_of(problem)
        chain = []
        while problem && chain.size < MAX_CAUSES
          chain << problem
          problem = CAUSE.bind_call(problem)
        end
        chain
      end

      # What is known of one exception of a chain.
      def link_facts(problem)
        { class_chain: class_chain(problem), errno: error_number(problem), path: file_name(problem),
          failed_call: failed_call(problem) }.compact
      end

      private

      # The error type of the failed call of another agent whose value was used, or of a refused ask.
      def failed_call(problem)
        name = AskError === problem ? :@error_type : :@failed_call
        code = IVAR.bind_call(problem, name)
        Recurgent.valid_text(code.to_s[0, MAX_CLASS_NAME]) if String === code || Symbol === code
      end

      # Class names up the hierarchy.
      def class_chain(problem)
        chain = []
        kind = CLASS.bind_call(problem)
        while kind && kind != Object && chain.size < MAX_CLASSES
          chain << Recurgent.valid_text((NAME.bind_call(kind) || "(anonymous class)")[0, MAX_CLASS_NAME])
          kind = SUPERCLASS.bind_call(kind)
        end
        chain
      end

      # The name of an operating system error, as ECONNREFUSED.
      def error_number(problem)
        return unless SystemCallError === problem

        class_chain(problem).filter_map { |name| name[/\AErrno::(\w+)\z/, 1] }.last
      end

      # The file of an operating system error. Ruby keeps it nowhere but at the end of its own message, after the
      # name of the function that failed: "No such file or directory @ rb_sysopen - /path".
      def file_name(problem)
        return unless SystemCallError === problem

        name = TEXT.bind_call(problem)[/ @ \w+ - (.+)\z/m, 1]
        name && Recurgent.valid_text(name)[0, MAX_PATH]
      rescue StandardError # a message of the program's own making
        nil
      end

      # Whether it passed through a line of the program. False if the arguments do not fit the method's function,
      # which Ruby reports at the line of its definition.
      def raised_in_program?(problem)
        !problem.equal?(Execution.current&.arity_error) && !Recurgent.program_line(problem).nil?
      end

      # The frames it passed through, innermost first, for the debug log.
      def backtrace_of(problem)
        frames = BACKTRACE.bind_call(problem) || []
        frames.first(MAX_FRAMES).map { |frame| Recurgent.valid_text(frame)[0, MAX_PATH] }
      end
    end
  end
end
