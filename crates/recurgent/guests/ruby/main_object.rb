module Recurgent
  # `self` of a program. Its own `def`s land on this object, beside these, and so see them.
  class Main
    def initialize(execution)
      @execution = execution
    end

    def context = @execution.context
    alias memory context
    alias runtime_context context
    def args = @execution.args
    def kwargs = @execution.kwargs
    def tool(name) = @execution.tool(name)
    def delegate(role, **options) = @execution.delegate(role, **options)
    def content(ref) = @execution.content(ref)
    def remember(**entries) = context.update(entries)
    def to_s = "main"
    alias inspect to_s

    private

    def include(*modules) = extend(*modules)
    def private(*) = nil
    alias public private
  end
end
