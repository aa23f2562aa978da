// run cuda: fuse, select
// The same work over other axes is the same kernel.
func.func @main(%x: f32[a, b, 8], %y: f32[a, 8]) -> (f32[a, b, 8], f32[a, 8]) attributes {heddle.symbols = {a = [1, 9], b = [1, 9]}} {
  %r = relu(%x) : (f32[a, b, 8]) -> f32[a, b, 8]
  %s = relu(%y) : (f32[a, 8]) -> f32[a, 8]
  return %r, %s : f32[a, b, 8], f32[a, 8]
}

// gives
module {
  func.func @main(%arg0: f32[a, b, 8], %arg1: f32[a, 8]) -> (f32[a, b, 8], f32[a, 8]) attributes {heddle.symbols = {a = [1, 9], b = [1, 9]}} {
    %0 = fused(%arg0) ({
    ^bb0(%arg2: f32[a, b, 8]):
      %2 = relu(%arg2) : (f32[a, b, 8]) -> f32[a, b, 8]
      yield(%2) : (f32[a, b, 8]) -> ()
    }) {kernel = "map-99b1db59227f"} : (f32[a, b, 8]) -> f32[a, b, 8]
    %1 = fused(%arg1) ({
    ^bb0(%arg2: f32[a, 8]):
      %2 = relu(%arg2) : (f32[a, 8]) -> f32[a, 8]
      yield(%2) : (f32[a, 8]) -> ()
    }) {kernel = "map-99b1db59227f"} : (f32[a, 8]) -> f32[a, 8]
    return %0, %1 : f32[a, b, 8], f32[a, 8]
  }
}
