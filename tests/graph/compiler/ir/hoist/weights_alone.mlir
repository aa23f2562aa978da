// run cuda: fuse, hoist
// exp of the weight is known at load, and so is not fused with what is not.
func.func @main(%x: f32[n, 8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w"} : () -> f32[8]
  %e = exp(%w) : (f32[8]) -> f32[8]
  %y = mul(%x, %e) : (f32[n, 8], f32[8]) -> f32[n, 8]
  return %y : f32[n, 8]
}

// gives
module {
  func.func @main(%arg0: f32[n, 8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "w"} : () -> f32[8]
    %1 = fused(%0) ({
    ^bb0(%arg1: f32[8]):
      %3 = exp(%arg1) : (f32[8]) -> f32[8]
      yield(%3) : (f32[8]) -> ()
    }) {stage = "init"} : (f32[8]) -> f32[8]
    %2 = fused(%arg0, %1) ({
    ^bb0(%arg1: f32[n, 8], %arg2: f32[8]):
      %3 = mul(%arg1, %arg2) : (f32[n, 8], f32[8]) -> f32[n, 8]
      yield(%3) : (f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[8]) -> f32[n, 8]
    return %2 : f32[n, 8]
  }
}
