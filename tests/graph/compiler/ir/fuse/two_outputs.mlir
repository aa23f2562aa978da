// run cuda: fuse
// The residual sum is normalised and added again: computed once, it leaves the matmul as well.
func.func @main(%x: f32[n, 8], %y: f32[8, 8], %g: f32[8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
  %a = matmul(%x, %y) {precision = "full"} : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
  %b = add(%a, %x) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
  %c = rms_norm(%b, %g) {epsilon = 1.0e-5 : f64} : (f32[n, 8], f32[8]) -> f32[n, 8]
  %d = relu(%b) : (f32[n, 8]) -> f32[n, 8]
  %e = add(%c, %d) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
  return %e : f32[n, 8]
}

// gives
module {
  func.func @main(%arg0: f32[n, 8], %arg1: f32[8, 8], %arg2: f32[8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
    %0:2 = fused(%arg0, %arg1, %arg0) ({
    ^bb0(%arg3: f32[n, 8], %arg4: f32[8, 8], %arg5: f32[n, 8]):
      %2 = matmul(%arg3, %arg4) {precision = "full"} : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
      %3 = add(%2, %arg5) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
      %4 = relu(%3) : (f32[n, 8]) -> f32[n, 8]
      yield(%3, %4) : (f32[n, 8], f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[8, 8], f32[n, 8]) -> (f32[n, 8], f32[n, 8])
    %1 = fused(%0#0, %arg2, %0#1) ({
    ^bb0(%arg3: f32[n, 8], %arg4: f32[8], %arg5: f32[n, 8]):
      %2 = rms_norm(%arg3, %arg4) {epsilon = 1.000000e-05 : f64} : (f32[n, 8], f32[8]) -> f32[n, 8]
      %3 = add(%2, %arg5) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
      yield(%3) : (f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[8], f32[n, 8]) -> f32[n, 8]
    return %1 : f32[n, 8]
  }
}
