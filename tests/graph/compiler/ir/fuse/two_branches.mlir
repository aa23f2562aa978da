// run cuda: fuse
// Both sides of the product are only for it: one kernel. The scalar's own shape is another one.
func.func @main(%x: f32[n, 8], %y: f32[n, 8], %s: f32[n, 1]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
  %a = exp(%x) : (f32[n, 8]) -> f32[n, 8]
  %b = tanh(%y) : (f32[n, 8]) -> f32[n, 8]
  %r = sqrt(%s) : (f32[n, 1]) -> f32[n, 1]
  %c = mul(%a, %b) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
  %d = mul(%c, %r) : (f32[n, 8], f32[n, 1]) -> f32[n, 8]
  return %d : f32[n, 8]
}

// gives
module {
  func.func @main(%arg0: f32[n, 8], %arg1: f32[n, 8], %arg2: f32[n, 1]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = fused(%arg2) ({
    ^bb0(%arg3: f32[n, 1]):
      %2 = sqrt(%arg3) : (f32[n, 1]) -> f32[n, 1]
      yield(%2) : (f32[n, 1]) -> ()
    }) : (f32[n, 1]) -> f32[n, 1]
    %1 = fused(%arg1, %arg0, %0) ({
    ^bb0(%arg3: f32[n, 8], %arg4: f32[n, 8], %arg5: f32[n, 1]):
      %2 = tanh(%arg3) : (f32[n, 8]) -> f32[n, 8]
      %3 = exp(%arg4) : (f32[n, 8]) -> f32[n, 8]
      %4 = mul(%3, %2) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
      %5 = mul(%4, %arg5) : (f32[n, 8], f32[n, 1]) -> f32[n, 8]
      yield(%5) : (f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[n, 8], f32[n, 1]) -> f32[n, 8]
    return %1 : f32[n, 8]
  }
}
